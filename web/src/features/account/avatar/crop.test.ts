import { expect, test } from "vitest";
import { limitCrop, maxZoom, moveCrop, sideOf, wholeCrop } from "./crop";

const wide = { width: 400, height: 200 };

test("the whole crop is the largest square in the middle", () => {
  expect(sideOf(wide, wholeCrop)).toBe(200);
  expect(limitCrop(wide, wholeCrop)).toEqual(wholeCrop);
});

test("a crop never leaves the picture, whatever moves it", () => {
  expect(moveCrop(wide, wholeCrop, -10, -10)).toEqual({ x: 0.25, y: 0.5, zoom: 1 });
  expect(moveCrop(wide, wholeCrop, 10, 10)).toEqual({ x: 0.75, y: 0.5, zoom: 1 });
  const corner = moveCrop(wide, { ...wholeCrop, zoom: 2 }, 10, 10);
  expect(corner).toEqual({ x: 0.875, y: 0.75, zoom: 2 });
  // Less zoom needs more room
  expect(limitCrop(wide, { ...corner, zoom: 1 })).toEqual({ x: 0.75, y: 0.5, zoom: 1 });
});

test("the zoom has bounds", () => {
  expect(limitCrop(wide, { ...wholeCrop, zoom: 0.1 }).zoom).toBe(1);
  expect(limitCrop(wide, { ...wholeCrop, zoom: 100 }).zoom).toBe(maxZoom);
});
