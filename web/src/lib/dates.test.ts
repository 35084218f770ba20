import { expect, test } from "vitest";
import { exactTime, relativeTime } from "./dates";

test("a line does not break between the minute and the half of the day", () => {
  expect(exactTime(new Date(2026, 10, 28, 17, 47))).toBe("Saturday, November 28, 2026 at 5:47\u202fPM");
  expect(exactTime(new Date(2026, 10, 28, 0, 5))).toBe("Saturday, November 28, 2026 at 12:05\u202fAM");
});

test.each([
  [0, "just now"],
  [59_999, "just now"],
  [60_000, "1 minute ago"],
  [7_199_999, "1 hour ago"],
  [-90_000, "in 1 minute"],
  [24 * 3_600_000, "yesterday"],
])("a time of %i ms ago is named by its largest unit", (age, text) => {
  const now = new Date(2026, 10, 28, 17, 47);
  expect(relativeTime(new Date(now.getTime() - age), now)).toBe(text);
});
