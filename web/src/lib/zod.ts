import { z } from "zod";

// The library would otherwise probe for `eval`, which our content security policy forbids and reports.
z.config({ jitless: true });

export { z };
