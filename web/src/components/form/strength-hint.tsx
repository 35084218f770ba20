import { useEffect, useState } from "react";
import { classNames } from "../../lib/class-names";
import { useConfig } from "../../lib/config-context";
import { passwordRulesText } from "../../lib/form-fields";
import * as m from "../../paraglide/messages";

const labels = [m.password_score_0, m.password_score_1, m.password_score_2, m.password_score_3, m.password_score_4];
const colours = ["bg-danger", "bg-danger", "bg-caution", "bg-success", "bg-success"];

/**
 * Shows the server's rules for a password, and its strength while it is typed. The dictionaries are
 * loaded with the first character.
 */
export function StrengthHint({ password, known }: { password: string; known: string[] }) {
  const rules = useConfig().accounts.password;
  const [score, setScore] = useState<number | null>(null);
  const knownText = known.join("\n");

  useEffect(() => {
    let isCurrent = true;
    if (password === "") return;
    void import("./password-score").then(
      ({ passwordScore }) => isCurrent && setScore(passwordScore(password, knownText.split("\n"))),
      // Without dictionaries there is no hint. The server still checks the password.
      () => undefined,
    );
    return () => {
      isCurrent = false;
    };
  }, [password, knownText]);

  const shown = password === "" ? null : score;
  return (
    <div className="flex flex-wrap items-center gap-x-3 gap-y-1 pt-0.5">
      {rules.requires.length > 0 && <p className="basis-full">{passwordRulesText(rules)}</p>}
      <div aria-hidden className="flex flex-1 gap-1">
        {[1, 2, 3, 4].map((step) => (
          <span
            key={step}
            className={classNames(
              "h-1 flex-1 rounded-full transition-colors duration-200",
              shown !== null && Math.max(shown, 1) >= step ? colours[shown] : "bg-line",
            )}
          />
        ))}
      </div>
      <span role="status" className="min-w-32 text-right text-sm">
        {shown !== null ? labels[shown]?.() : rules.requires.length === 0 && passwordRulesText(rules)}
      </span>
    </div>
  );
}
