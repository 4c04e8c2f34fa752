/** The subjects of findings: the directions of each connection, with what rules ask about them. */
import { exchangeIndex, exchangeOf } from '../pair/exchange-of.ts';
import type { ConnectionState } from '../track/direction.ts';
import { type Capture, flowName, type Subject } from './rule.ts';

/** @param states in the order of the capture's connections */
export function subjectsOf(states: readonly ConnectionState[], capture: Capture): Subject[][] {
  const opened = exchangeIndex(capture.exchanges);
  return states.map(({ first, second }, i) => {
    const connection = capture.connections[i];
    const { a, b } = connection;
    const exchange = exchangeOf(connection, opened);
    return [first, second]
      .filter((direction) => direction !== undefined)
      .map((direction) => {
        const { from } = direction;
        const [requester, responder] = from === 'a' ? [a.address, b.address] : [b.address, a.address];
        const name = flowName(connection, from);
        return { direction, connection, name, requester, responder, exchange, capture };
      });
  });
}
