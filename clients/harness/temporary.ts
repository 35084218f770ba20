import { statfsSync } from "node:fs";
import { tmpdir } from "node:os";

const MEMORY = "/dev/shm";
/** Some times what the servers of a run take, in bytes. */
const NEEDED = 6 * 2 ** 30;

/**
 * The place for the folders of tests: in memory if there is space. There, the hundreds of files of
 * each database and the flush of each commit take no time.
 */
export const temporaryPlace = hasSpace() ? MEMORY : tmpdir();

function hasSpace(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return bavail * bsize >= NEEDED;
  } catch {
    // Only Linux has it
    return false;
  }
}
