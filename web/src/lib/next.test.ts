import { expect, test } from "vitest";
import { rememberNext, safeNext, takeRememberedNext } from "./next";
import { visitorAddress } from "./paths";

test.each([["/app"], ["/app/security"], ["/app?tab=files#top"]])("%s is a place to return to", (place) => {
  expect(safeNext(place)).toBe(place);
});

test.each([
  [null],
  [""],
  ["app"],
  ["//evil.test/app"],
  ["/\\evil.test/app"],
  ["https://evil.test/app"],
  ["javascript:alert(1)"],
  ["/app/../sign-in"],
  ["/application"],
  ["/\t/evil.test/app"],
  ["/sign-in"],
])("%s is not", (place) => {
  expect(safeNext(place)).toBeNull();
});

test("a place survives the round trip to a provider, once", () => {
  rememberNext("/app/files");
  expect(takeRememberedNext()).toBe("/app/files");
  expect(takeRememberedNext()).toBeNull();
});

test("the account's own address needs no mention", () => {
  expect(visitorAddress("/sign-in", { next: "/app" })).toBe("/sign-in");
  expect(visitorAddress("/sign-in", { next: "/app/files?a=1" })).toBe("/sign-in?next=%2Fapp%2Ffiles%3Fa%3D1");
});
