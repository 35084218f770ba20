import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Fingerprint, Plus } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { RelativeTime } from "../../components/relative-time";
import { RichText } from "../../components/rich-text";
import { useStepUp } from "../../components/second-factor/step-up";
import { Button } from "../../components/ui/button";
import { ConfirmDialog } from "../../components/ui/confirm-dialog";
import { useAuth } from "../../lib/auth/auth-context";
import { addressForPasskeys, supportsPasskeys } from "../../lib/auth/passkey-support";
import * as m from "../../paraglide/messages";
import { PasskeyName } from "./passkey-name";
import { addPasskey, type Passkey, passkeysKey, passkeysQuery } from "./passkeys";
import { ActionFailure, LoadFailure, Panel, Row, RowSkeleton, Section } from "./section";

/** The account's passkeys: adding, naming and removing them. */
export function PasskeySection() {
  const { client } = useAuth();
  const queries = useQueryClient();
  const { withSecondFactor, dialog } = useStepUp();
  const { data: passkeys, error, refetch } = useQuery(passkeysQuery(client));
  const [namedId, setNamedId] = useState<string | null>(null);
  const [passkeyToRemove, setPasskeyToRemove] = useState<Passkey | null>(null);
  const [status, setStatus] = useState("");
  const addButton = useRef<HTMLButtonElement>(null);
  const localAddress = addressForPasskeys();

  const add = useMutation({
    mutationFn: () => withSecondFactor(() => addPasskey(client)),
    onSuccess: async (id) => {
      await queries.invalidateQueries({ queryKey: passkeysKey });
      setStatus(m.passkeys_added_status());
      // A name that tells this device from the others.
      setNamedId(id);
    },
  });
  const remove = useMutation({
    mutationFn: ({ id }: Passkey) =>
      withSecondFactor(async () => {
        const { error } = await client.passkey.delete({ passkeyId: id });
        if (error) throw error;
      }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: passkeysKey });
      setStatus(m.passkeys_removed_status());
    },
    onSettled: () => {
      setPasskeyToRemove(null);
      addButton.current?.focus();
    },
  });

  return (
    <Section title={m.passkeys_title()} text={m.passkeys_text()} status={status}>
      <ActionFailure error={add.error ?? remove.error} />
      {error && <LoadFailure error={error} onRetry={() => void refetch()} />}
      {!error && passkeys === undefined && <RowSkeleton />}
      {passkeys?.map((passkey) => (
        <PasskeyRow
          key={passkey.id}
          passkey={passkey}
          isNaming={passkey.id === namedId}
          onNaming={(isNaming) => setNamedId(isNaming ? passkey.id : null)}
          onRemove={() => setPasskeyToRemove(passkey)}
        />
      ))}
      {passkeys && (
        <div className="flex flex-wrap items-center justify-between gap-x-6 gap-y-3 px-5 py-4 sm:px-6">
          <p className="min-w-0 flex-1 basis-52 text-sm text-soft">
            {localAddress !== null ? (
              <RichText
                message={m.passkeys_need_host_name}
                inputs={{}}
                elements={{
                  link: (text) => (
                    <a href={localAddress} className="font-medium text-ink underline underline-offset-4">
                      {text}
                    </a>
                  ),
                }}
              />
            ) : !supportsPasskeys() ? (
              m.passkeys_unsupported()
            ) : (
              passkeys.length === 0 && m.passkeys_none()
            )}
          </p>
          {localAddress === null && supportsPasskeys() && (
            <Button ref={addButton} tone="secondary" size="sm" isPending={add.isPending} onClick={() => add.mutate()}>
              {!add.isPending && <Plus aria-hidden className="size-4" />}
              {add.isPending ? m.passkeys_adding() : m.passkeys_add()}
            </Button>
          )}
        </div>
      )}
      {passkeyToRemove && (
        <ConfirmDialog
          title={m.passkeys_remove_title({ name: shownName(passkeyToRemove) })}
          action={m.security_remove()}
          isPending={remove.isPending}
          onClose={() => setPasskeyToRemove(null)}
          onConfirm={() => remove.mutate(passkeyToRemove)}
        >
          {m.passkeys_remove_text()}
        </ConfirmDialog>
      )}
      {dialog}
    </Section>
  );
}

function PasskeyRow({
  passkey,
  isNaming,
  onNaming,
  onRemove,
}: {
  passkey: Passkey;
  isNaming: boolean;
  onNaming: (isNaming: boolean) => void;
  onRemove: () => void;
}) {
  const name = shownName(passkey);
  const renameButton = useRef<HTMLButtonElement>(null);
  const wasNaming = useRef(false);
  const { createdAt, lastUsedAt } = passkey;
  const added = () => <RelativeTime at={createdAt} />;

  useEffect(() => {
    if (wasNaming.current && !isNaming) renameButton.current?.focus();
    wasNaming.current = isNaming;
  }, [isNaming]);

  return (
    <Row
      Icon={Fingerprint}
      title={name}
      text={
        lastUsedAt === null ? (
          <RichText message={m.passkeys_never_used} inputs={{}} elements={{ added }} />
        ) : (
          <RichText message={m.passkeys_used} inputs={{}} elements={{ added, time: () => <RelativeTime at={lastUsedAt} /> }} />
        )
      }
      actions={
        !isNaming && (
          <>
            <Button ref={renameButton} tone="quiet" size="sm" aria-label={m.passkeys_rename_named({ name })} onClick={() => onNaming(true)}>
              {m.passkeys_rename()}
            </Button>
            <Button tone="quiet" size="sm" aria-label={m.security_remove_named({ name })} onClick={onRemove}>
              {m.security_remove()}
            </Button>
          </>
        )
      }
    >
      {isNaming && (
        <Panel>
          <PasskeyName passkey={passkey} onClosed={() => onNaming(false)} />
        </Panel>
      )}
    </Row>
  );
}

function shownName({ name }: Passkey): string {
  return name === "" ? m.passkeys_unnamed() : name;
}
