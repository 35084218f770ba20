import { Check, Copy } from "lucide-react";
import { useEffect, useState } from "react";
import { Button } from "../../components/ui/button";
import * as m from "../../paraglide/messages";

const shownMs = 2000;

/** Copies a text to the clipboard, and shows for a moment that it did. */
export function CopyButton({ text }: { text: string }) {
  const [isCopied, setIsCopied] = useState(false);

  useEffect(() => {
    if (!isCopied) return;
    const timer = window.setTimeout(() => setIsCopied(false), shownMs);
    return () => window.clearTimeout(timer);
  }, [isCopied]);

  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setIsCopied(true);
    } catch {
      // The browser refuses, for instance without a secure connection. The text can be selected.
    }
  }

  const Icon = isCopied ? Check : Copy;
  return (
    <Button tone="secondary" size="sm" onClick={copy}>
      <Icon aria-hidden className="size-4" />
      <span role="status">{isCopied ? m.copied() : m.copy()}</span>
    </Button>
  );
}
