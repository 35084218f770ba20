// The page of an application that uploads what is dropped on it, with Uppy and its TUS plugin.
import Uppy from "@uppy/core";
import Tus from "@uppy/tus";

/** The settings of the page, from its address. */
const settings = new URLSearchParams(location.hash.slice(1));

const uppy = new Uppy({ autoProceed: true }).use(Tus, {
  endpoint: settings.get("endpoint")!,
  headers: { authorization: `Bearer ${settings.get("token")!}`, apikey: settings.get("key")! },
  chunkSize: Number(settings.get("chunk")),
  retryDelays: [50, 100, 200],
  removeFingerprintOnSuccess: true,
  allowedMetaFields: ["bucketName", "objectName", "contentType", "cacheControl"],
});

const element = (id: string): HTMLElement => document.getElementById(id)!;
const bar = element("progress") as HTMLProgressElement;

uppy.on("file-added", (file) => {
  uppy.setFileMeta(file.id, { bucketName: "files", objectName: `${settings.get("folder")!}/${file.name}`, contentType: file.type, cacheControl: "3600" });
});
uppy.on("upload-progress", (_file, progress) => {
  bar.value = progress.bytesUploaded;
  bar.max = progress.bytesTotal ?? 1;
});
uppy.on("complete", ({ successful, failed }) => {
  element("state").textContent = `stored ${String(successful?.length ?? 0)}, failed ${String(failed?.length ?? 0)}`;
});
uppy.on("upload-error", (_file, error) => {
  element("error").textContent = error.message;
});

const zone = element("zone");
zone.addEventListener("dragover", (event) => {
  event.preventDefault();
});
zone.addEventListener("drop", (event) => {
  event.preventDefault();
  for (const file of event.dataTransfer!.files) uppy.addFile({ name: file.name, type: file.type, data: file });
});
element("pause").addEventListener("click", () => {
  uppy.pauseAll();
  element("state").textContent = "paused";
});
element("resume").addEventListener("click", () => {
  element("state").textContent = "resumed";
  uppy.resumeAll();
});
