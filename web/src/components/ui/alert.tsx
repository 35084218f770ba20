import { CircleAlert, Info } from "lucide-react";
import { type ReactNode, type Ref } from "react";
import { classNames } from "../../lib/class-names";

const tones = {
  danger: { looks: "bg-danger-wash text-danger", icon: CircleAlert, role: "alert" },
  caution: { looks: "bg-caution-wash text-caution", icon: CircleAlert, role: "status" },
  info: { looks: "bg-accent-wash text-accent-strong", icon: Info, role: "status" },
} as const;

interface AlertProps {
  tone: keyof typeof tones;
  children: ReactNode;
  actions?: ReactNode;
  className?: string;
  ref?: Ref<HTMLDivElement>;
}

/** A message that is announced when it appears. */
export function Alert({ tone, children, actions, className, ref }: AlertProps) {
  const { looks, icon: Icon, role } = tones[tone];
  return (
    <div
      ref={ref}
      role={role}
      tabIndex={-1}
      className={classNames("flex items-start gap-x-3 gap-y-2 rounded px-4 py-3 text-sm max-sm:flex-wrap", looks, className)}
    >
      <Icon aria-hidden className="mt-0.5 size-4 shrink-0" />
      {/* On a narrow screen the text has the whole width, and the actions come below it. */}
      <div className="min-w-0 flex-1 [overflow-wrap:anywhere] max-sm:basis-[calc(100%-1.75rem)]">{children}</div>
      {actions !== undefined && <div className="shrink-0 max-sm:pl-7">{actions}</div>}
    </div>
  );
}
