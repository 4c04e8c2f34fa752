/** A name that the resolver knows until the end of a test. */
import dns from 'node:dns/promises';
import { syncBuiltinESMExports } from 'node:module';
import { onTestFinished, vi } from 'vitest';

/** @param answer what `lookup` returns for it */
export function addName(host: string, answer: (options: { all?: boolean }) => Promise<unknown>): void {
  const { lookup } = dns;
  const spy = vi
    .spyOn(dns, 'lookup')
    .mockImplementation(((name: string, options = {}) =>
      name === host ? answer(options) : lookup(name, options)) as never);
  syncBuiltinESMExports();
  onTestFinished(() => {
    spy.mockRestore();
    syncBuiltinESMExports();
  });
}
