import * as RadixTabs from "@radix-ui/react-tabs";
import type { ReactNode } from "react";

interface Tab<Value extends string> {
  value: Value;
  label: string;
  content: ReactNode;
}

/**
 * A row of tabs and the content of the selected one. Which one that is belongs into the page's
 * query parameters.
 */
export function Tabs<Value extends string>({
  label,
  tabs,
  value,
  onValueChange,
}: {
  label: string;
  tabs: Tab<Value>[];
  value: Value;
  onValueChange: (value: Value) => void;
}) {
  return (
    <RadixTabs.Root
      value={value}
      onValueChange={(selected) => {
        const tab = tabs.find((candidate) => candidate.value === selected);
        if (tab) onValueChange(tab.value);
      }}
    >
      <RadixTabs.List aria-label={label} className="flex gap-1 overflow-x-auto border-b border-line">
        {tabs.map((tab) => (
          <RadixTabs.Trigger
            key={tab.value}
            value={tab.value}
            className="-mb-px min-h-11 shrink-0 border-b-2 border-transparent px-3 text-sm font-medium text-soft hover:text-ink data-[state=active]:border-accent data-[state=active]:text-ink"
          >
            {tab.label}
          </RadixTabs.Trigger>
        ))}
      </RadixTabs.List>
      {tabs.map((tab) => (
        <RadixTabs.Content key={tab.value} value={tab.value} className="pt-5">
          {tab.content}
        </RadixTabs.Content>
      ))}
    </RadixTabs.Root>
  );
}
