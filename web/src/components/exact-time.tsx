import { useEffect, useRef, useState } from "react";

import { exactTime } from "../lib/dates";

/**
 * A day and a minute, written when it is about to be seen: the first format of a page loads the
 * browser's language data, which takes longer than to render the page.
 */
export function ExactTime({ at }: { at: Date }) {
  const element = useRef<HTMLTimeElement>(null);
  const [isNear, setIsNear] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver(
      ([entry]) => {
        if (entry?.isIntersecting === true) setIsNear(true);
      },
      { rootMargin: "10%" },
    );
    if (element.current !== null) observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return (
    <time ref={element} dateTime={at.toISOString()}>
      {isNear ? exactTime(at) : "\u00a0"}
    </time>
  );
}
