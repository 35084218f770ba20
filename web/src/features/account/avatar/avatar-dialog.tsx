import type { User } from "@supabase/supabase-js";
import { useMutation } from "@tanstack/react-query";
import { ImageUp } from "lucide-react";
import { type ChangeEvent, type DragEvent, useEffect, useRef, useState } from "react";
import AccountPicture from "../../../components/account-picture";
import { Alert } from "../../../components/ui/alert";
import { Button } from "../../../components/ui/button";
import { Dialog } from "../../../components/ui/dialog";
import { useAuth } from "../../../lib/auth/auth-context";
import { ownPictureFile } from "../../../lib/avatar";
import { classNames } from "../../../lib/class-names";
import { useConfig } from "../../../lib/config-context";
import { describeError } from "../../../lib/errors";
import * as m from "../../../paraglide/messages";
import { knownError, removePicture, storePicture } from "./changes";
import { type Crop, encodeCrop, limitCrop, wholeCrop } from "./crop";
import { CropStage } from "./crop-stage";
import { acceptedTypes, type FileProblem, maxFileMebibytes, openPicture } from "./image-file";

const problems: Record<FileProblem, () => string> = {
  type: m.avatar_wrong_type,
  size: () => m.avatar_too_large({ megabytes: maxFileMebibytes }),
  damaged: m.avatar_damaged,
};

/**
 * Chooses, crops, replaces and removes the user's picture. `dropped` is a file that was dropped on
 * the page. What was chosen stays until it is stored.
 */
export default function AvatarDialog({
  user,
  dropped,
  onDone,
  onClose,
}: {
  user: User;
  dropped: File | null;
  /** Called with what was done. */
  onDone: (status: string) => void;
  onClose: () => void;
}) {
  const { client } = useAuth();
  const config = useConfig();
  const input = useRef<HTMLInputElement>(null);
  const [picture, setPicture] = useState<ImageBitmap | null>(null);
  const [crop, setCrop] = useState<Crop>(wholeCrop);
  const [problem, setProblem] = useState<FileProblem | null>(null);
  const [isOver, setIsOver] = useState(false);
  const hasOwn = ownPictureFile(user) !== null;

  const store = useMutation({
    mutationFn: async (chosen: ImageBitmap) => storePicture({ config, client, user }, await encodeCrop(chosen, crop)),
  });
  const remove = useMutation({ mutationFn: () => removePicture({ config, client, user }) });
  const error = store.error ?? remove.error;
  const isPending = store.isPending || remove.isPending;

  /** The number of the last choice: an earlier one that is decoded later has no effect. */
  const choice = useRef(0);
  async function open(file: File | undefined): Promise<void> {
    if (!file || isPending) return;
    const turn = ++choice.current;
    const opened = await openPicture(file);
    if (turn !== choice.current) {
      if (typeof opened !== "string") opened.close();
      return;
    }
    store.reset();
    remove.reset();
    if (typeof opened === "string") {
      setProblem(opened);
      return;
    }
    setProblem(null);
    setPicture(opened);
    setCrop(limitCrop(opened, wholeCrop));
  }
  useEffect(() => () => picture?.close(), [picture]);
  useEffect(
    () => () => {
      choice.current++;
    },
    [],
  );

  // The callbacks of `mutate` have no effect once the dialog is closed.
  function save(chosen: ImageBitmap): void {
    choice.current++;
    store.mutate(chosen, { onSuccess: () => onDone(m.avatar_stored()) });
  }
  function removeOwn(): void {
    choice.current++;
    remove.mutate(undefined, { onSuccess: () => onDone(m.avatar_removed()) });
  }

  const openDropped = useRef(open);
  useEffect(() => {
    openDropped.current = open;
  });
  useEffect(() => {
    if (dropped) void openDropped.current(dropped);
  }, [dropped]);

  function onChoice({ currentTarget }: ChangeEvent<HTMLInputElement>): void {
    void open(currentTarget.files?.[0]);
    // The same file can be chosen again.
    currentTarget.value = "";
  }

  const dropTarget = {
    onDragOver: (event: DragEvent) => {
      event.preventDefault();
      setIsOver(true);
    },
    onDragLeave: () => setIsOver(false),
    onDrop: (event: DragEvent) => {
      event.preventDefault();
      // The dialog is inside of the place on the page that takes files too.
      event.stopPropagation();
      setIsOver(false);
      void open(event.dataTransfer.files[0]);
    },
  };

  return (
    <Dialog
      title={picture ? m.avatar_crop_title() : m.avatar_title()}
      isBusy={isPending}
      onClose={onClose}
      actions={
        <>
          {!picture && hasOwn && (
            <Button tone="danger" size="sm" className="mr-auto" isPending={remove.isPending} onClick={removeOwn}>
              {m.avatar_remove()}
            </Button>
          )}
          {picture && (
            <Button tone="quiet" size="sm" className="mr-auto" disabled={isPending} onClick={() => input.current?.click()}>
              {m.avatar_choose_other()}
            </Button>
          )}
          <span className="flex gap-3">
            <Button tone="secondary" size="sm" disabled={isPending} onClick={onClose}>
              {m.cancel()}
            </Button>
            {picture && (
              <Button size="sm" isPending={store.isPending} onClick={() => save(picture)}>
                {m.avatar_store()}
              </Button>
            )}
          </span>
        </>
      }
    >
      <div className="space-y-4" {...dropTarget}>
        {problem !== null && <Alert tone="danger">{problems[problem]()}</Alert>}
        {error && <Alert tone="danger">{m.avatar_not_stored({ reason: describeError(knownError(error)).message })}</Alert>}
        {picture ? (
          <CropStage picture={picture} crop={crop} onChange={setCrop} />
        ) : (
          <div
            className={classNames(
              "flex flex-col items-center gap-4 rounded border border-dashed px-4 py-6 text-center",
              isOver ? "border-accent bg-accent-wash" : "border-line-strong",
            )}
          >
            <AccountPicture user={user} size={64} />
            <p>{m.avatar_drop()}</p>
            <Button tone="secondary" size="sm" disabled={isPending} onClick={() => input.current?.click()}>
              <ImageUp aria-hidden className="size-4" />
              {m.avatar_choose()}
            </Button>
          </div>
        )}
        <input ref={input} type="file" accept={acceptedTypes} hidden onChange={onChoice} />
      </div>
    </Dialog>
  );
}
