import { useState } from "react";
import { useAuth } from "../../lib/auth/auth-context";
import { errorCode } from "../../lib/errors";

/** The values of a form for a new password. */
export interface PasswordChange {
  /** Empty where the form has no field for it. */
  currentPassword: string;
  password: string;
  /** The code that the server sent, empty before it is required. */
  code: string;
}

/**
 * Changes the password. Where the server requires a proof that this is still the same user, it is
 * asked for a code, the form shows a field for it (`needsCode`), and the change is submitted again
 * with the code.
 */
export function usePasswordChange() {
  const { client } = useAuth();
  const [needsCode, setNeedsCode] = useState(false);

  async function changePassword({ currentPassword, password, code }: PasswordChange): Promise<void> {
    const current = currentPassword === "" ? {} : { current_password: currentPassword };
    const { error } = await client.updateUser({ password, ...current, ...(needsCode ? { nonce: code } : {}) });
    if (!error) return;
    if (errorCode(error) === "reauthentication_needed" && !needsCode) {
      const request = await client.reauthenticate();
      if (request.error) throw request.error;
      setNeedsCode(true);
    }
    throw error;
  }

  return { needsCode, changePassword };
}
