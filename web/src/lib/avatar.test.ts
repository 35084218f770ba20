import { expect, test } from "vitest";
import { ada, config } from "../testing/fake-server";
import { nameOf, ownPictureUrl, pictureObject, pictureOf, providerPictures } from "./avatar";

const file = `${"a".repeat(36)}.webp`;
const kept = { ...config, avatars: { kept: true, rendered: true } };
const userWith = (user_metadata: Record<string, unknown>, providerUrl?: string) => ({
  ...ada,
  user_metadata,
  identities: [{ identity_id: "i", id: "i", user_id: ada.id, provider: "google", identity_data: { avatar_url: providerUrl } }],
});
const own = `http://portico.test/storage/v1/object/public/portico-avatars/${ada.id}/${file}`;

test("a chosen picture is requested in the size of its place, and as it is where nothing is rendered", () => {
  const user = userWith({ avatar_url: own, portico_avatar: file });
  const path = `http://portico.test/storage/v1/render/image/public/portico-avatars/${ada.id}/${file}`;
  expect(pictureOf(user, kept, 64)).toEqual({
    src: `${path}?width=64&height=64`,
    srcSet: `${path}?width=64&height=64 1x, ${path}?width=128&height=128 2x`,
  });
  expect(pictureOf(user, { ...kept, avatars: { kept: true, rendered: false } }, 64)).toEqual({ src: own });
});

test("a picture is requested by its version, and stored under one of the names of an account", () => {
  const file = `3.webp?v=${"0".repeat(16)}`;
  const user = userWith({ avatar_url: ownPictureUrl(kept, ada, file), portico_avatar: file });
  const path = `http://portico.test/storage/v1/render/image/public/portico-avatars/${ada.id}/${file}`;
  expect(pictureOf(user, kept, 64)?.src).toBe(`${path}&width=64&height=64`);
  expect(pictureObject(ada, file)).toBe(`${ada.id}/3.webp`);
  for (const other of ["8.webp?v=0000000000000000", "3.webp", "3.webp?v=0&width=9", "3.html?v=0000000000000000"]) {
    expect(pictureOf(userWith({ portico_avatar: other }), kept, 64), other).toBeNull();
  }
});

test("a provider's picture does not replace a chosen one, and an app's does", () => {
  const google = "https://provider.example/me.png";
  const chosen = { portico_avatar: file };
  expect(pictureOf(userWith({ ...chosen, avatar_url: google }, google), kept, 64)?.src).toContain(file);
  expect(pictureOf(userWith({ ...chosen, avatar_url: "https://app.example/me.png" }, google), kept, 64)).toEqual({ src: "https://app.example/me.png" });
  expect(pictureOf(userWith({ avatar_url: google }, google), kept, 64)).toEqual({ src: google });
  expect(providerPictures(userWith({}, google))).toEqual([google]);
  // Of several identities, each may have been the last sign-in
  const [first, second] = ["https://first.example/me.png", "https://second.example/me.png"];
  const user = userWith({ ...chosen, avatar_url: second }, first);
  user.identities.push({ identity_id: "j", id: "j", user_id: ada.id, provider: "github", identity_data: { avatar_url: second } });
  expect(pictureOf(user, kept, 64)?.src).toContain(file);
});

test("metadata that names no picture shows none", () => {
  for (const metadata of [{}, { avatar_url: "javascript:alert(1)" }, { avatar_url: "http://other.example/x" }, { portico_avatar: "../../x.webp" }, { portico_avatar: 1, picture: {} }]) {
    expect(pictureOf(userWith(metadata), kept, 64), JSON.stringify(metadata)).toBeNull();
  }
  // Where the storage service is switched off
  expect(pictureOf(userWith({ portico_avatar: file }), config, 64)).toBeNull();
});

test("a name is shown without the spaces around it", () => {
  expect([nameOf(userWith({ full_name: " Ada " })), nameOf(userWith({ full_name: " ", name: "Ada" })), nameOf(userWith({ name: 1 }))]).toEqual(["Ada", null, null]);
});
