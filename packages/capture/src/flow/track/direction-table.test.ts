import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RocePacket } from '../../read/packet.ts';
import { Budgets } from '../record/direction-record.ts';
import { Direction } from './direction.ts';
import { DirectionTable } from './direction-table.ts';

test('finds the added entries and no others, as a map does', () => {
  const small = fc.integer({ min: 0, max: 6 });
  const key = fc.tuple(
    small,
    small,
    fc.integer({ min: 0, max: 0xff_ffff }),
    fc.constantFrom(-1, 0, 1, 0xff_ffff),
  );
  fc.assert(
    fc.property(fc.array(key, { maxLength: 400 }), fc.array(key, { maxLength: 50 }), (added, asked) => {
      const table = new DirectionTable();
      const map = new Map<string, Direction>();
      for (const [source, destination, destQp, sourceQp] of added) {
        if (map.has(String([source, destination, destQp, sourceQp]))) continue;
        const packet = Object.assign(new RocePacket(), {
          source,
          destination,
          destQp,
          info: { isResponse: false },
        });
        const direction = new Direction(packet, sourceQp, new Budgets());
        table.add(direction);
        map.set(String([source, destination, destQp, sourceQp]), direction);
      }
      for (const k of [...added, ...asked]) expect(table.find(...k)).toBe(map.get(String(k)));
    }),
    { numRuns: 50 },
  );
});
