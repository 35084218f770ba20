import { beforeEach, expect, test, vi } from "vitest";
import { spaceRuns } from "./spaced-runs";

beforeEach(() => {
  vi.useFakeTimers();
  return () => vi.useRealTimers();
});

test("calls during a run and its pause start one more run", async () => {
  const run = vi.fn(() => Promise.resolve());
  const request = spaceRuns(run, 500);
  request();
  request();
  request();
  expect(run).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(499);
  request();
  expect(run).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(run).toHaveBeenCalledTimes(2);
  await vi.advanceTimersByTimeAsync(2000);
  expect(run).toHaveBeenCalledTimes(2);
  request();
  expect(run).toHaveBeenCalledTimes(3);
});

test("a run that takes longer than the pause, or fails, is followed by the next", async () => {
  const ends: ((isSuccess: boolean) => void)[] = [];
  const run = vi.fn(() => new Promise<void>((resolve, reject) => ends.push((isSuccess) => (isSuccess ? resolve() : reject(new Error("no"))))));
  const request = spaceRuns(run, 500);
  request();
  request();
  await vi.advanceTimersByTimeAsync(1000);
  expect(run).toHaveBeenCalledTimes(1);
  ends[0]?.(false);
  await vi.advanceTimersByTimeAsync(0);
  expect(run).toHaveBeenCalledTimes(2);
});
