// The form of the library whose unused parts a bundler can leave out: about a quarter of the size.
import * as z from "zod/mini";

// Without this the library probes for `eval`, which our content security policy forbids and
// reports.
z.config({ jitless: true });

export { z };
