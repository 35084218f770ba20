import { CircleAlert } from "lucide-react";
import { type ComponentProps, type ReactNode, useId } from "react";
import { classNames } from "../../lib/class-names";

export interface FieldProps extends ComponentProps<"input"> {
  label: string;
  hint?: ReactNode;
  error?: string | undefined;
  /** Shown beside the label, such as a link for a forgotten password. */
  aside?: ReactNode;
  /** Shown inside the input, at its right end. */
  end?: ReactNode;
}

/** A labelled input. Its hint and its error are its accessible description. */
export function Field({ label, hint, error, aside, end, className, id: givenId, ...input }: FieldProps) {
  const ownId = useId();
  const id = givenId ?? ownId;
  const hintId = `${id}-hint`;
  const errorId = `${id}-error`;
  const describedBy = classNames(error !== undefined && errorId, hint !== undefined && hintId);
  return (
    <div>
      <div className="mb-1.5 flex items-baseline justify-between gap-4">
        <label htmlFor={id} className="text-sm font-medium [overflow-wrap:anywhere]">
          {label}
        </label>
        {aside}
      </div>
      <div className="relative">
        <input
          id={id}
          aria-invalid={error !== undefined}
          aria-describedby={describedBy === "" ? undefined : describedBy}
          className={classNames(
            "min-h-11 w-full rounded border bg-surface px-3 text-base text-ink transition-colors duration-150",
            "placeholder:text-soft focus:border-accent focus:outline-2 focus:outline-offset-0 focus:outline-accent",
            "disabled:opacity-70",
            error === undefined ? "border-line-strong/60 hover:border-line-strong" : "border-danger",
            end !== undefined && "pr-12",
            className,
          )}
          {...input}
        />
        {end !== undefined && <div className="absolute inset-y-0 right-1 flex items-center">{end}</div>}
      </div>
      {error !== undefined && (
        <p id={errorId} className="mt-1.5 flex items-start gap-1.5 text-sm text-danger">
          <CircleAlert aria-hidden className="mt-0.5 size-4 shrink-0" />
          <span>{error}</span>
        </p>
      )}
      {hint !== undefined && (
        <div id={hintId} className="mt-1.5 text-sm text-soft">
          {hint}
        </div>
      )}
    </div>
  );
}
