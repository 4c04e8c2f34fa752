/** The exchange of the connection manager that opened a connection. */
import type { ConnectionFacts } from '../facts.ts';
import type { CmExchange } from './cm-exchanges.ts';

/** Exchanges of the connection manager by their active end. */
export function exchangeIndex(exchanges: readonly CmExchange[]): Map<string, CmExchange[]> {
  const index = new Map<string, CmExchange[]>();
  for (const exchange of exchanges) {
    const key = partyKey(exchange.active);
    index.set(key, [...(index.get(key) ?? []), exchange]);
  }
  return index;
}

const partyKey = ({ address, qpn }: { address: string; qpn: number }): string => `${address} ${qpn}`;

/** The one that opened a connection, which it names both queue pairs of. */
export function exchangeOf(
  { a, b, start, end }: ConnectionFacts,
  index: ReadonlyMap<string, CmExchange[]>,
): CmExchange | undefined {
  const fits = (active: ConnectionFacts['a'], passive: ConnectionFacts['a']) =>
    index
      .get(partyKey(active))
      ?.find(
        (exchange) =>
          isParty(exchange.passive, passive) &&
          exchange.start <= end &&
          exchange.end >= Math.min(start, exchange.start),
      );
  return fits(a, b) ?? fits(b, a);
}

/** Whether a side of an exchange is an end of a connection. */
export const isParty = (
  party: { address: string; qpn: number },
  end: { address: string; qpn: number },
): boolean => party.address === end.address && party.qpn >= 0 && party.qpn === end.qpn;
