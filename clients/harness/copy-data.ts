import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** Copies a data folder with its owners and modes, which PostgreSQL checks. */
export async function copyData(from: string, to: string): Promise<void> {
  await promisify(execFile)("cp", ["-a", from, to]);
}
