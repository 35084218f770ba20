/** The largest file that is opened: the result of the crop is far smaller. */
export const maxFileMebibytes = 20;

/** The reason why a file cannot be used as a picture. */
export type FileProblem = "type" | "size" | "damaged";

/** The types that browsers decode and that are pictures of pixels. */
export const acceptedTypes = "image/png,image/jpeg,image/webp,image/gif,image/avif";

/** Returns true for a picture, by its first bytes: names and declared types can be wrong. */
export function isPicture(start: Uint8Array): boolean {
  const text = (from: number, to: number): string => String.fromCharCode(...start.subarray(from, to));
  return (
    text(0, 8) === "\x89PNG\r\n\x1a\n" ||
    text(0, 3) === "\xff\xd8\xff" ||
    /^GIF8[79]a$/.test(text(0, 6)) ||
    (text(0, 4) === "RIFF" && text(8, 12) === "WEBP") ||
    /^ftypavi[fs]$/.test(text(4, 12))
  );
}

/** Decodes a file, turned upright. */
export async function openPicture(file: Blob): Promise<ImageBitmap | FileProblem> {
  if (file.size > maxFileMebibytes * 1024 * 1024) return "size";
  if (!isPicture(new Uint8Array(await file.slice(0, 16).arrayBuffer()))) return "type";
  try {
    return await createImageBitmap(file);
  } catch {
    return "damaged";
  }
}
