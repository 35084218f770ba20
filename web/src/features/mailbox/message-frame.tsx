import { useEffect, useRef, useState } from "react";
import { typePolicy } from "../../lib/trusted-types";

// The HTML that it creates is shown only in a frame without scripts.
const policy = typePolicy("portico-mail", { createHTML: (html) => html });

/**
 * An email as its recipient sees it, in a frame that runs no scripts. The page's content security
 * policy applies there too and forbids inline styles as text, so they are applied through the style
 * objects instead.
 */
export function MessageFrame({ html, title }: { html: string; title: string }) {
  const frame = useRef<HTMLIFrameElement>(null);
  const [height, setHeight] = useState(240);

  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const onLoad = () => {
      const content = element.contentDocument;
      if (!content) return;
      applyStyles(content);
      for (const link of content.querySelectorAll("a[href]")) {
        link.setAttribute("target", "_blank");
        link.setAttribute("rel", "noreferrer");
      }
      setHeight(Math.min(2400, Math.max(160, content.documentElement.scrollHeight)));
    };
    element.addEventListener("load", onLoad);
    const safe = withoutInlineStyles(html);
    element.srcdoc = policy.createHTML?.(safe) ?? safe;
    return () => element.removeEventListener("load", onLoad);
  }, [html]);

  return (
    // The frame is light for emails that have no dark look; its border is that of the page.
    <div className="overflow-hidden rounded border border-line">
      <iframe
        ref={frame}
        title={title}
        sandbox="allow-same-origin allow-popups allow-popups-to-escape-sandbox"
        referrerPolicy="no-referrer"
        height={height}
        className="block w-full bg-[white] [color-scheme:light]"
      />
    </div>
  );
}

const pageStyle = "margin:0;padding:min(24px,4vw);background:white;color:#1c2427;font:16px/1.55 system-ui,sans-serif";

/** Moves the email's own styles to where the policy does not apply. */
function withoutInlineStyles(html: string): string {
  return html
    .replace(/(<[^<>]*?\s)style(\s*=)/gi, "$1data-style$2")
    .replace(/<style\b/gi, "<template data-sheet")
    .replace(/<\/style>/gi, "</template>");
}

function applyStyles(content: Document): void {
  content.body.style.cssText = `${pageStyle};${content.body.dataset.style ?? ""}`;
  for (const element of content.body.querySelectorAll<HTMLElement>("[data-style]")) {
    element.style.cssText = element.dataset.style ?? "";
  }
  const Sheet = content.defaultView?.CSSStyleSheet;
  if (!Sheet) return;
  const templates = content.querySelectorAll<HTMLTemplateElement>("template[data-sheet]");
  content.adoptedStyleSheets = Array.from(templates, ({ content: style }) => {
    const sheet = new Sheet();
    sheet.replaceSync(style.textContent);
    return sheet;
  });
}
