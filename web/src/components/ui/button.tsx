import { LoaderCircle } from "lucide-react";
import type { ComponentProps } from "react";
import { classNames } from "../../lib/class-names";
import { AppLink } from "../../lib/navigation";

const tones = {
  primary: "bg-accent text-on-accent hover:bg-accent-strong",
  secondary: "bg-surface text-ink border border-line hover:border-line-strong",
  quiet: "text-soft hover:text-ink hover:bg-sunken",
  danger: "bg-danger-wash text-danger hover:border-danger border border-transparent",
};
const sizes = {
  md: "min-h-11 px-4 gap-2.5",
  sm: "min-h-9 px-3 gap-2 text-sm",
};

interface ButtonLook {
  tone?: keyof typeof tones;
  size?: keyof typeof sizes;
  className?: string | undefined;
}

function buttonClass({ tone = "primary", size = "md", className }: ButtonLook): string {
  return classNames(
    "inline-flex items-center justify-center rounded font-medium select-none transition-colors duration-150",
    "disabled:pointer-events-none disabled:opacity-60 aria-busy:opacity-80",
    tones[tone],
    sizes[size],
    className,
  );
}

export interface ButtonProps extends Omit<ComponentProps<"button">, "className">, ButtonLook {
  /** The action is running: the button shows that and cannot be pressed. */
  isPending?: boolean;
}

export function Button({ tone, size, className, isPending = false, children, disabled, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      className={buttonClass({ tone, size, className })}
      disabled={disabled === true || isPending}
      aria-busy={isPending}
      {...rest}
    >
      {isPending && <LoaderCircle aria-hidden className="spinner size-4 shrink-0" />}
      {children}
    </button>
  );
}

/** A link to a page of this application that looks like a button. */
export function ButtonLink({ tone, size, className, ...rest }: Omit<ComponentProps<typeof AppLink>, "className"> & ButtonLook) {
  return <AppLink className={buttonClass({ tone, size, className })} {...rest} />;
}
