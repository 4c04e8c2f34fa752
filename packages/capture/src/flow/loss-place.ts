/** Where a loss lay, relative to the tap, as far as what the capture shows of it says. */
import type { SentAgain } from './sent-again.ts';
import type { Verdict } from './verdict.ts';

/**
 * Names what was missing when a requester went back, and on whose side of the tap it was lost or late. A request that the
 * capture shows passed the tap: so it was missed behind it, on the responder's side.
 */
export function placeLoss(verdict: Verdict, { psn, unacked, unseen }: SentAgain): void {
  switch (verdict.cause) {
    case 'sequence-nak':
      verdict.missing = 'request';
      verdict.side = unseen ? 'requester' : 'responder';
      return;
    case 'implied-nak':
      verdict.missing = 'response';
      verdict.side = psn < unacked ? 'requester' : 'responder';
      return;
    case 'rnr':
      verdict.missing = 'none';
      return;
    case 'timeout':
    case 'probe':
      // The answer was seen, but the requester has not got it; or nothing was.
      verdict.missing = psn < unacked ? 'response' : 'either';
      verdict.side = psn < unacked ? 'requester' : 'responder';
      return;
    default:
  }
}
