import "@testing-library/jest-dom/vitest";
import { cleanup } from "@testing-library/react";
import { afterEach, beforeEach, vi } from "vitest";

// Functions of a browser that jsdom lacks.
if (typeof window !== "undefined") {
  window.matchMedia = (media) => Object.assign(new EventTarget(), { matches: false, media }) as MediaQueryList;
  window.scrollTo = () => undefined;
  HTMLDialogElement.prototype.showModal = function () {
    this.open = true;
  };
  HTMLDialogElement.prototype.close = function () {
    this.open = false;
  };
  navigator.sendBeacon = () => true;
  HTMLElement.prototype.hasPointerCapture = () => false;
  // Without a layout, every element is seen.
  window.IntersectionObserver = class {
    constructor(private readonly report: IntersectionObserverCallback) {}
    observe(target: Element) {
      this.report([{ isIntersecting: true, target } as IntersectionObserverEntry], this as unknown as IntersectionObserver);
    }
    disconnect() {
      this.report([], this as unknown as IntersectionObserver);
    }
  } as unknown as typeof IntersectionObserver;

  beforeEach(() => {
    window.localStorage.clear();
    window.sessionStorage.clear();
    window.history.replaceState(null, "", "/");
    // Each test is a browser of its own; the tests of several tabs use a channel of their own.
    vi.stubGlobal("BroadcastChannel", undefined);
    // The client warns about a second instance on a page; here each belongs to another test.
    const { warn } = console;
    vi.spyOn(console, "warn").mockImplementation((...parts: unknown[]) => {
      if (!String(parts[0]).includes("Multiple GoTrueClient instances")) warn(...parts);
    });
  });
  afterEach(() => {
    cleanup();
  });
}
