import { Slot } from "@radix-ui/react-slot";
import { LoaderCircle } from "lucide-react";
import type { ComponentProps } from "react";
import { classNames } from "../../lib/class-names";

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

export interface ButtonProps extends ComponentProps<"button"> {
  tone?: keyof typeof tones;
  size?: keyof typeof sizes;
  /** The action runs: the button waits with it and says so. */
  isPending?: boolean;
  /** Gives the looks to the child, for links that act like buttons. */
  asChild?: boolean;
}

export function Button({
  tone = "primary",
  size = "md",
  isPending = false,
  asChild = false,
  className,
  children,
  disabled,
  ...rest
}: ButtonProps) {
  const looks = classNames(
    "inline-flex items-center justify-center rounded font-medium select-none transition-colors duration-150",
    "disabled:opacity-60 aria-busy:opacity-80",
    tones[tone],
    sizes[size],
    className,
  );
  if (asChild) {
    return (
      <Slot className={looks} {...rest}>
        {children}
      </Slot>
    );
  }
  return (
    <button type="button" className={looks} disabled={disabled === true || isPending} aria-busy={isPending} {...rest}>
      {isPending && <LoaderCircle aria-hidden className="spinner size-4 shrink-0" />}
      {children}
    </button>
  );
}
