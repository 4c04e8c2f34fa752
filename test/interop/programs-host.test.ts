/** Programs that the guest's image does not have: this machine's, on rxe in the guest, and on `roce run` here. */
import { inject, test } from 'vitest';
import { Guest } from './harness/guest.ts';
import { bothEndWell, MINUTES, ready, type Side, twoSides } from './harness/two-sides.ts';

const { HERE, THERE, gone } = twoSides(new Guest(inject('guest9000')));

test.each([
  ['-p verbs -e msg', 'here', HERE, THERE],
  ['-p verbs -e msg', 'in the guest', THERE, HERE],
  ["-p 'verbs;ofi_rxm' -e rdm", 'here', HERE, THERE],
  ["-p 'verbs;ofi_rxd' -e rdm", 'here', HERE, THERE],
])('fi_pingpong %s, its server %s', { timeout: 10 * MINUTES }, async (kind, _, server, client) => {
  // By default, ofi_rxm creates a completion queue for 256 peers, which is too large for rxe. The index of a GID is for datagrams.
  const line = ({ gidIndex }: Side) =>
    `env FI_UNIVERSE_SIZE=2 FI_VERBS_GID_IDX=${gidIndex} fi_pingpong ${kind} -I 10 -S 4096 -c`;
  const serving = server.start(line(server));
  // The port of its control connection.
  await ready(serving, server.listensTcp(47_592));
  await bothEndWell(serving, client.start(`${line(client)} ${server.address}`), /^4k +10 /m);
  await gone();
});
