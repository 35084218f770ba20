import { SignOutAlert } from "../../components/sign-out-alert";
import { Button } from "../../components/ui/button";
import { useSignOut } from "../../lib/auth/use-sign-out";
import * as m from "../../paraglide/messages";

/** Signs out on this device. A failure has a row of its own, below the header of the page. */
export function SignOutButton() {
  const { start, isPending, failure } = useSignOut();
  return (
    <>
      <Button tone="secondary" isPending={isPending} onClick={start}>
        {isPending ? m.sign_out_pending() : m.sign_out()}
      </Button>
      {failure !== null && <SignOutAlert reason={failure} className="basis-full" />}
    </>
  );
}
