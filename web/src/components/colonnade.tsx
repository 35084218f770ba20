import { useId } from "react";
import { classNames } from "../lib/class-names";

const openings = [34, 236, 438];
const width = 168;
const springing = 268;
const floor = 612;

/** The application's picture: a loggia with a view. Decoration only. */
export function Colonnade({ className }: { className?: string }) {
  const id = useId();
  return (
    <svg
      aria-hidden
      viewBox="0 0 640 720"
      preserveAspectRatio="xMidYMid slice"
      className={classNames("block h-full w-full", className)}
    >
      <defs>
        <linearGradient id={`${id}sky`} x1="0" y1="0" x2="0" y2="1">
          <stop offset="0.2" stopColor="var(--sky-high)" />
          <stop offset="0.72" stopColor="var(--sky-low)" />
        </linearGradient>
        <linearGradient id={`${id}pool`} x1="0" y1="0" x2="0" y2="1">
          <stop offset="0" stopColor="var(--pool)" />
          <stop offset="1" stopColor="var(--pool)" stopOpacity="0.1" />
        </linearGradient>
      </defs>
      <rect width="640" height="720" fill={`url(#${id}sky)`} />
      <circle cx="313" cy="372" r="112" fill="var(--halo)" />
      <circle cx="313" cy="372" r="52" fill="var(--sun)" />
      <path d="M0 470 C90 428 168 436 250 462 S430 496 520 440 S620 420 640 426 V640 H0Z" fill="var(--hill-far)" />
      <path d="M0 520 C110 478 190 500 292 520 S500 540 640 482 V640 H0Z" fill="var(--hill)" />
      {[
        [112, 506, 1],
        [136, 512, 0.72],
        [548, 512, 0.9],
      ].map(([x = 0, y = 0, size = 1]) => (
        <path
          key={x}
          transform={`translate(${x} ${y}) scale(${size})`}
          d="M0 8 C-11 -6 -9 -58 0 -86 C9 -58 11 -6 0 8Z"
          fill="var(--hill)"
          stroke="var(--hill-far)"
          strokeWidth="1"
        />
      ))}
      <Wall fill="var(--stone-deep)" inset={15} />
      <Wall fill="var(--stone)" inset={0} />
      <path d="M0 84 H640 M0 104 H640" stroke="var(--stone-shade)" strokeWidth="6" />
      {[0, ...openings.map((left) => left + width)].map((left) => (
        <rect key={left} x={left - 5} y={springing - 8} width={44} height="13" rx="2" fill="var(--stone-shade)" />
      ))}
      <rect y={floor} width="640" height="108" fill="var(--stone-shade)" />
      <rect y={floor} width="640" height="5" fill="var(--stone-deep)" />
      {openings.map((left) => (
        <path
          key={left}
          d={`M${left + 6} ${floor + 5} H${left + width - 8} L${left + width - 62} 720 H${left - 76}Z`}
          fill={`url(#${id}pool)`}
        />
      ))}
    </svg>
  );
}

/** The wall with its three arches; a second one behind, with narrower openings, gives it depth. */
function Wall({ fill, inset }: { fill: string; inset: number }) {
  const radius = width / 2 - inset / 2;
  const arches = openings.map((left) => {
    const right = left + width - inset;
    return `M${left} ${floor} V${springing} A${radius} ${radius} 0 0 1 ${right} ${springing} V${floor}Z`;
  });
  return <path fillRule="evenodd" fill={fill} d={`M0 0 H640 V720 H0Z ${arches.join(" ")}`} />;
}
