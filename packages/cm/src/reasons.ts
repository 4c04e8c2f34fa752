/** Names of the reasons and statuses in a peer's answers. */
import { CmAprStatus, CmRejReason, CmSidrStatus } from '@node-roce/wire';

const nameIn = (table: Readonly<Record<string, number>>): ((value: number) => string) => {
  const names = new Map(Object.entries(table).map(([name, value]) => [value, name]));
  return (value) => names.get(value) ?? `UNKNOWN_${value}`;
};

/** `reason` of a REJ: `INVALID_SERVICE_ID`. */
export const rejectReasonName = nameIn(CmRejReason);

/** `status` of an APR: `INVALID_GID`. */
export const aprStatusName = nameIn(CmAprStatus);

/** `status` of a SIDR_REP: `UNSUPPORTED`. */
export const sidrStatusName = nameIn(CmSidrStatus);
