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
      className={classNames("flex items-start gap-x-3 rounded px-4 py-3 text-sm", looks, className)}
    >
      <Icon aria-hidden className="mt-0.5 size-4 shrink-0" />
      {/* Where there is no room beside the text, the actions come below it. */}
      <div className="flex min-w-0 flex-1 flex-wrap items-start gap-x-3 gap-y-2">
        <div className="min-w-0 flex-1 basis-[min(18rem,100%)] [overflow-wrap:anywhere]">{children}</div>
        {actions}
      </div>
    </div>
  );
}
