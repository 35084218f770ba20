import { act, fireEvent, render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";

import { ExactTime } from "./exact-time";
import { RelativeTime } from "./relative-time";

const at = new Date(2024, 1, 3, 16, 5);
const exact = /^Saturday, February 3, 2024 at 4:05\sPM$/;

test("a relative time tells the exact one to the pointer", () => {
  render(<RelativeTime at={at} />);
  const time = screen.getByText(/ago$/);
  expect(time).toHaveAttribute("datetime", at.toISOString());
  expect(time.title).toBe("");
  fireEvent.pointerEnter(time);
  expect(time.title).toMatch(exact);
});

test("an exact time is written when it is near", () => {
  let report: IntersectionObserverCallback = () => undefined;
  const disconnect = vi.fn();
  const observed: Element[] = [];
  class Observer {
    observe = (element: Element): number => observed.push(element);
    disconnect = disconnect;
    constructor(callback: IntersectionObserverCallback) {
      report = callback;
    }
  }
  vi.stubGlobal("IntersectionObserver", Observer);
  const { container, unmount } = render(<ExactTime at={at} />);
  const [time] = observed;
  expect(time).toHaveAttribute("datetime", at.toISOString());
  expect(container).toHaveTextContent(/^\s*$/);
  const moves = (isIntersecting: boolean): void => {
    act(() => report([{ isIntersecting } as IntersectionObserverEntry], undefined as unknown as IntersectionObserver));
  };
  moves(false);
  expect(container).toHaveTextContent(/^\s*$/);
  moves(true);
  expect(container).toHaveTextContent(exact);
  moves(false);
  expect(container).toHaveTextContent(exact);
  unmount();
  expect(disconnect).toHaveBeenCalled();
});
