import { useRef, useState } from "react";

/**
 * The state of a part of the page that a button opens and closes, and the properties of this
 * button. Closing moves the focus back to it.
 */
export function useDisclosure() {
  const [isOpen, setIsOpen] = useState(false);
  const ref = useRef<HTMLButtonElement>(null);

  function close() {
    setIsOpen(false);
    ref.current?.focus();
  }

  return { isOpen, close, button: { ref, "aria-expanded": isOpen, onClick: () => (isOpen ? close() : setIsOpen(true)) } };
}
