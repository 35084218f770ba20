import type { User } from "@supabase/supabase-js";
import type { Config } from "./config";
import { recordOf, textOf } from "./json";

/** The bucket of the pictures that people choose here; the server makes it. */
export const avatarBucket = "portico-avatars";

/** The address of a picture, and those for screens with more pixels. */
export interface Picture {
  src: string;
  srcSet?: string;
}

/**
 * The file of a picture, as the metadata has it: one of the few names that the server gives an
 * account, and a version, since a later picture can have the same name. Older files have a name of
 * their own and no version.
 */
const fileName = /^(?:[0-7]\.(?:webp|jpg|png)\?v=[0-9a-f]{16}|[0-9a-f-]{36}\.(?:webp|jpg|png))$/;

/** Returns the file of the picture that the user has chosen here. */
export function ownPictureFile(user: User): string | null {
  const file = textOf(recordOf(user.user_metadata).portico_avatar);
  return file !== null && fileName.test(file) ? file : null;
}

/** Returns the object of a file in the bucket. */
export const pictureObject = (user: User, file: string): string => `${user.id}/${file.split("?", 1)[0] ?? file}`;

/** Returns the pictures that providers have for the user, one for each identity that has one. */
export const providerPictures = (user: User): string[] =>
  (user.identities ?? []).flatMap(({ identity_data }) => {
    const { avatar_url, picture } = recordOf(identity_data);
    return textOf(avatar_url) ?? textOf(picture) ?? [];
  });

/** Returns false if an app has set another picture than the one that was chosen here. */
export function isAddressOf(user: User, file: string): boolean {
  const address = textOf(recordOf(user.user_metadata).avatar_url);
  return address === null || address.endsWith(`/${user.id}/${file}`) || providerPictures(user).includes(address);
}

/** Returns the address at which everyone can read the picture that the user has chosen here. */
export const ownPictureUrl = (config: Config, user: User, file: string): string =>
  `${config.url}/storage/v1/object/public/${avatarBucket}/${user.id}/${file}`;

/**
 * Returns the picture of a user in a square of `size` pixels, or `null` when there is none: the one
 * chosen here, unless an app has set another one since, or that of a provider. A sign-in with a
 * provider writes its picture over `avatar_url`, which does not replace a chosen one.
 */
export function pictureOf(user: User, config: Config, size: number): Picture | null {
  const { avatar_url, picture } = recordOf(user.user_metadata);
  const file = config.avatars.kept ? ownPictureFile(user) : null;
  if (file !== null && isAddressOf(user, file)) return ownPicture(user, config, file, size);
  const src = textOf(avatar_url) ?? textOf(picture);
  return src !== null && isAllowedPicture(src, config.development) ? { src } : null;
}

function ownPicture(user: User, config: Config, file: string, size: number): Picture {
  if (!config.avatars.rendered) return { src: ownPictureUrl(config, user, file) };
  const rendered = (pixels: number): string =>
    `${config.url}/storage/v1/render/image/public/${avatarBucket}/${user.id}/${file}${file.includes("?") ? "&" : "?"}width=${pixels}&height=${pixels}`;
  return { src: rendered(size), srcSet: `${rendered(size)} 1x, ${rendered(size * 2)} 2x` };
}

/**
 * Returns true for pictures over https, and for those of the emulated provider, which is on this
 * machine.
 */
function isAllowedPicture(url: string, development: boolean): boolean {
  return url.startsWith("https://") || (development && /^http:\/\/(127\.0\.0\.1|localhost)[:/]/.test(url));
}

/** Returns the name of a user as providers and apps store it. */
export function nameOf(user: User): string | null {
  const { full_name, name } = recordOf(user.user_metadata);
  return textOf((textOf(full_name) ?? textOf(name))?.trim());
}
