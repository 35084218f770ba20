import { Fragment, type ReactNode } from "react";
import type { MessagePart } from "../paraglide/runtime";

/** A message whose markup has names; `Names` are those of its own. */
interface RichMessage<Inputs, Names extends string> {
  parts: (inputs: Inputs) => MessagePart[];
  readonly __paraglide?: { markup: Record<Names, unknown> };
}

/**
 * Renders a message that holds elements: a name of its markup becomes what `elements` makes of the
 * text inside.
 */
export function RichText<Inputs, Names extends string>({
  message,
  inputs,
  elements,
}: {
  message: RichMessage<Inputs, Names>;
  inputs: Inputs;
  elements: Record<Names, (text: ReactNode) => ReactNode>;
}) {
  // The parts name only what the type of the message has.
  const elementOf = (name: string, text: ReactNode) => elements[name as Names](text);
  const rendered: ReactNode[] = [];
  let text: ReactNode[] | null = null;
  for (const part of message.parts(inputs)) {
    if (part.type === "text") (text ?? rendered).push(part.value);
    else if (part.type === "markup-start") text = [];
    else {
      const element = elementOf(part.name, text);
      rendered.push(<Fragment key={rendered.length}>{element}</Fragment>);
      text = null;
    }
  }
  return rendered;
}
