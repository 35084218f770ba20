import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { Form, FormField } from "../../components/form/form";
import { FormActions } from "../../components/form/form-actions";
import { useZodForm } from "../../components/form/use-zod-form";
import { useAuth } from "../../lib/auth/auth-context";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { type Passkey, passkeysKey } from "./passkeys";

/** The server's limit, which counts bytes. */
const isShortEnough = (name: string) => new TextEncoder().encode(name).length <= 120;

const schema = z.object({
  name: z
    .string()
    .check(
      z.trim(),
      z.minLength(1, { error: () => m.passkeys_name_required() }),
      z.refine(isShortEnough, { error: () => m.passkeys_name_too_long() }),
    ),
});

/** The form for the name of a passkey. */
export function PasskeyName({ passkey, onClosed }: { passkey: Passkey; onClosed: () => void }) {
  const { client } = useAuth();
  const queries = useQueryClient();
  const form = useZodForm(schema, { name: passkey.name });
  const { setFocus } = form;
  const { isSubmitting } = form.formState;

  useEffect(() => setFocus("name", { shouldSelect: true }), [setFocus]);

  async function save({ name }: z.infer<typeof schema>) {
    const { error } = await client.passkey.update({ passkeyId: passkey.id, friendlyName: name });
    if (error) throw error;
    await queries.invalidateQueries({ queryKey: passkeysKey });
    onClosed();
  }

  return (
    <Form form={form} onSubmit={save} className="space-y-4">
      <FormField form={form} name="name" label={m.passkeys_name_label()} autoComplete="off" />
      <FormActions submit={m.passkeys_save()} isSubmitting={isSubmitting} onCancel={onClosed} />
    </Form>
  );
}
