/** Errors of workloads. */

/** @throws Error with the message and the detail */
export function require(condition: boolean, message: string, detail: unknown): void {
  if (condition) return;
  const text = JSON.stringify(detail, (_, value) => (typeof value === 'bigint' ? `${value}n` : value));
  throw new Error(`${message}: ${text}`);
}

export const sameBytes = (a: Uint8Array, b: Uint8Array) =>
  a.length === b.length && a.every((byte, i) => byte === b[i]);

/** The same properties with the same values, in whatever order. */
export const same = (a: object, b: object) => {
  const sorted = (value: object) => JSON.stringify(Object.entries(value).sort());
  return sorted(a) === sorted(b);
};
