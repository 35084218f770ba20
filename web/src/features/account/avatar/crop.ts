/** The part of a picture that is kept: a square. */
export interface Crop {
  /** The middle, in fractions of the width and the height. */
  x: number;
  y: number;
  /** The side of the largest square, divided by that of this one. */
  zoom: number;
}

export interface Size {
  width: number;
  height: number;
}

export const maxZoom = 5;
/** The side of a stored picture in pixels: four times that of the largest place it shows in. */
export const storedSide = 512;

export const wholeCrop: Crop = { x: 0.5, y: 0.5, zoom: 1 };

/** Returns the side of the square in pixels of the picture. */
export const sideOf = ({ width, height }: Size, { zoom }: Crop): number => Math.min(width, height) / zoom;

/** Returns the crop within the picture and within the bounds of the zoom. */
export function limitCrop(picture: Size, crop: Crop): Crop {
  const zoom = Math.min(Math.max(crop.zoom, 1), maxZoom);
  const half = sideOf(picture, { ...crop, zoom }) / 2;
  const limit = (middle: number, length: number): number => Math.min(Math.max(middle, half / length), 1 - half / length);
  return { x: limit(crop.x, picture.width), y: limit(crop.y, picture.height), zoom };
}

/** Moves the crop by fractions of its side. */
export function moveCrop(picture: Size, crop: Crop, right: number, down: number): Crop {
  const side = sideOf(picture, crop);
  return limitCrop(picture, { ...crop, x: crop.x + (right * side) / picture.width, y: crop.y + (down * side) / picture.height });
}

/** Draws the crop into the whole canvas. */
export function drawCrop(canvas: HTMLCanvasElement, picture: ImageBitmap, crop: Crop): void {
  const side = sideOf(picture, crop);
  const context = canvas.getContext("2d");
  if (!context) return;
  context.imageSmoothingQuality = "high";
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, crop.x * picture.width - side / 2, crop.y * picture.height - side / 2, side, side, 0, 0, canvas.width, canvas.height);
}

/** Returns the crop as a file: WebP, and JPEG from browsers that cannot write it. */
export async function encodeCrop(picture: ImageBitmap, crop: Crop): Promise<Blob> {
  const canvas = document.createElement("canvas");
  // A small picture is not made larger.
  canvas.width = canvas.height = Math.max(1, Math.min(storedSide, Math.round(sideOf(picture, crop))));
  drawCrop(canvas, picture, crop);
  const webp = await blobOf(canvas, "image/webp");
  if (webp.type === "image/webp") return webp;
  const context = canvas.getContext("2d");
  if (context) {
    // JPEG has no transparency, which would become black.
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
  }
  return blobOf(canvas, "image/jpeg");
}

function blobOf(canvas: HTMLCanvasElement, type: string): Promise<Blob> {
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture could not be encoded"))), type, 0.9),
  );
}
