import * as m from "../../paraglide/messages";
import { Button } from "../ui/button";

/**
 * The buttons at the end of a form that opens inside a page: one submits it, the other closes it.
 */
export function FormActions({
  submit,
  pending = submit,
  isSubmitting,
  onCancel,
}: {
  submit: string;
  /** The first button's label while the form is submitted. */
  pending?: string;
  isSubmitting: boolean;
  onCancel: () => void;
}) {
  return (
    <div className="flex flex-wrap gap-3">
      <Button type="submit" size="sm" isPending={isSubmitting}>
        {isSubmitting ? pending : submit}
      </Button>
      <Button tone="quiet" size="sm" onClick={onCancel}>
        {m.cancel()}
      </Button>
    </div>
  );
}
