// The form of the library whose unused parts a bundler can leave out: about a quarter of the other one.
import * as z from "zod/mini";

// The library would otherwise probe for `eval`, which our content security policy forbids and reports.
z.config({ jitless: true });

export { z };
