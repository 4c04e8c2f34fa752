/** Two paths between two sides: side N has GID N at index 0 and GID N + 10 at index 1, and a path joins equal indices. */
import type { AdapterOptions, AhAttr, GidEntry, QpAttr } from '../src/index.ts';
import { addressOf, gidOf } from './pair.ts';

const entry = (n: number): GidEntry => ({ gid: gidOf(n), address: `10.0.0.${n}`, type: 'RoCE v2' });

/** GIDs and the experiment that a side with two paths is made with. */
export function migrating(n: number): Pick<AdapterOptions, 'gids' | 'experimental'> {
  return { gids: [entry(n), entry(n + 10)], experimental: ['apm'] };
}

/** The route to side N over path 0 or 1. */
function pathTo(n: number, path: number): AhAttr {
  const { grh, ...rest } = addressOf(n + 10 * path);
  return { ...rest, grh: { ...grh, sgidIndex: path } };
}

/** The attributes of the alternate path to side N. */
export function alternateTo(n: number, change: Partial<QpAttr> = {}, path = 1): QpAttr {
  return { altAhAttr: pathTo(n, path), altPkeyIndex: 0, altPortNum: 1, altTimeout: 13, ...change };
}
