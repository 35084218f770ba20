/** The paths of the pages. `page-code.ts` has the code of each. */
export type PagePath =
  | "/"
  | "/app"
  | "/app/security"
  | "/confirm-email-change"
  | "/forgot-password"
  | "/mailbox"
  | "/mfa"
  | "/sign-in"
  | "/sign-up"
  | "/update-password"
  | "/verify";

/** An address inside the signed-in area, which may not have a page of its own yet. */
export type AppAddress = `/app${"" | `${"/" | "?" | "#"}${string}`}`;

/** An address of this application: the path of a page, with or without query parameters. */
export type PageAddress = PagePath | `${PagePath}?${string}` | AppAddress;

/** The query parameters of the pages for visitors. */
export interface VisitorSearch {
  /** The page after sign-in. */
  next?: AppAddress | null;
  /** Selects the form for phone numbers. */
  with?: "phone" | null;
}

/** Writes the address of a page for visitors. `/app`, where sign-in leads anyway, is left out. */
export function visitorAddress(path: PagePath, search: VisitorSearch): PageAddress {
  const parameters = new URLSearchParams();
  if (search.next && search.next !== "/app") parameters.set("next", search.next);
  if (search.with) parameters.set("with", search.with);
  return parameters.size === 0 ? path : `${path}?${parameters.toString()}`;
}
