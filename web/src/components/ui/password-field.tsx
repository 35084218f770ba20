import { Eye, EyeOff } from "lucide-react";
import { useState } from "react";
import * as m from "../../paraglide/messages";
import { Field, type FieldProps } from "./field";

/** A password input whose text can be shown. Paste and password managers work. */
export function PasswordField(props: FieldProps) {
  const [isShown, setIsShown] = useState(false);
  const Icon = isShown ? EyeOff : Eye;
  return (
    <Field
      {...props}
      type={isShown ? "text" : "password"}
      autoCapitalize="off"
      autoCorrect="off"
      spellCheck={false}
      end={
        <button
          type="button"
          onClick={() => setIsShown(!isShown)}
          aria-label={isShown ? m.password_hide() : m.password_show()}
          aria-pressed={isShown}
          className="grid size-9 place-items-center rounded text-soft hover:text-ink"
        >
          <Icon aria-hidden className="size-[1.15rem]" />
        </button>
      }
    />
  );
}
