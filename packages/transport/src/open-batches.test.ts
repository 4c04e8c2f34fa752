/** Numbers that are given back while a batch is open are released when the last one is closed, and not before. */
import { expect, test } from 'vitest';
import { OpenBatches } from './open-batches.ts';

function setUp() {
  const batches = new OpenBatches<{ name: string }>();
  const released: string[] = [];
  const give = (name: string) => batches.afterwards(() => released.push(name));
  return { batches, released, give };
}

test('at once, where no batch is open', () => {
  const { released, give } = setUp();
  give('a');
  expect(released).toEqual(['a']);
});

test('after the last batch, in order, once', () => {
  const { batches, released, give } = setUp();
  const [one, two] = [{ name: 'one' }, { name: 'two' }];
  batches.open(one);
  give('a');
  batches.open(two);
  // As with each packet that is added: it counts once.
  batches.open(two);
  give('b');
  batches.close(one);
  batches.close(one);
  expect([released, batches.any]).toEqual([[], true]);
  batches.close(two);
  expect([released, batches.any]).toEqual([['a', 'b'], false]);
  batches.open(one);
  batches.close(one);
  expect(released).toEqual(['a', 'b']);
});

test('a batch of frames counts, and is in no list', () => {
  const { batches, released, give } = setUp();
  const batch = { name: 'packets' };
  batches.openFrames();
  batches.open(batch);
  give('a');
  expect(batches.list).toEqual([batch]);
  batches.close(batch);
  expect(released).toEqual([]);
  batches.closeFrames();
  expect(released).toEqual(['a']);
});

test('a release that frames do not hold up waits for batches of packets alone', () => {
  const { batches, released, give } = setUp();
  const batch = { name: 'packets' };
  batches.openFrames();
  batches.afterPackets(() => released.push('at once'));
  batches.open(batch);
  batches.afterPackets(() => released.push('a'));
  give('b');
  expect(released).toEqual(['at once']);
  batches.close(batch);
  expect(released).toEqual(['at once', 'a']);
  batches.closeFrames();
  expect(released).toEqual(['at once', 'a', 'b']);
});

test('at the next close, though no batch is open yet', () => {
  const { batches, released } = setUp();
  batches.atClose(() => released.push('a'));
  expect(released).toEqual([]);
  const batch = { name: 'packets' };
  batches.open(batch);
  batches.close(batch);
  expect(released).toEqual(['a']);
});

test('a release may give back more, which is released as well', () => {
  const { batches, released, give } = setUp();
  const batch = { name: 'packets' };
  batches.open(batch);
  batches.afterwards(() => give('later'));
  give('a');
  batches.close(batch);
  expect(released).toEqual(['later', 'a']);
});
