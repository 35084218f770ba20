import { expect, test } from "vitest";
import { isPicture, maxFileMebibytes, openPicture } from "./image-file";

const bytes = (text: string): Uint8Array => Uint8Array.from(text, (character) => character.charCodeAt(0));

test("pictures are recognised by their first bytes", () => {
  for (const start of ["\x89PNG\r\n\x1a\n", "\xff\xd8\xff\xe0", "GIF89a", "RIFF\x01\x02\x03\x04WEBPVP8 ", "\0\0\0\x1cftypavif"]) {
    expect(isPicture(bytes(start)), start).toBe(true);
  }
  for (const start of ["", "<svg xmlns", "<html>", "RIFF\x01\x02\x03\x04WAVE", "\0\0\0\x1cftypheic", "GIF90a", "\x89PNG"]) {
    expect(isPicture(bytes(start)), start).toBe(false);
  }
});

test("the size is checked before anything is read", async () => {
  const file = { size: maxFileMebibytes * 1024 * 1024 + 1 } as Blob;
  expect(await openPicture(file)).toBe("size");
});
