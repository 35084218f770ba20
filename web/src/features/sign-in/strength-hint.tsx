import { useEffect, useState } from "react";
import { classNames } from "../../lib/class-names";

const words = ["Very easy to guess", "Easy to guess", "Could be stronger", "Strong", "Very strong"];
const colours = ["bg-danger", "bg-danger", "bg-caution", "bg-success", "bg-success"];

/** How strong the password is while it is typed. The dictionaries behind it load with the first character. */
export function StrengthHint({ password, known }: { password: string; known: string[] }) {
  const [score, setScore] = useState<number | null>(null);
  const knownText = known.join("\n");

  useEffect(() => {
    let isCurrent = true;
    if (password === "") return;
    void import("./password-score").then(
      ({ passwordScore }) => isCurrent && setScore(passwordScore(password, knownText.split("\n"))),
      // Without dictionaries the hint stays away; the server still judges.
      () => undefined,
    );
    return () => {
      isCurrent = false;
    };
  }, [password, knownText]);

  const shown = password === "" ? null : score;
  return (
    <div className="flex items-center gap-3 pt-0.5">
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
        {shown === null ? "At least 8 characters" : words[shown]}
      </span>
    </div>
  );
}
