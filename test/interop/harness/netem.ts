/** tc commands, to be run in the guest, that spoil RoCE packets and leave TCP and ARP alone. */

const ROCE_PORT = 4791;

/** u32 filters of a parent qdisc that pick UDP to port 4791, IPv4 and IPv6. */
const pick = (device: string, parent: string, action: string): string[] =>
  [
    ['ip', 'ip protocol 17 0xff', 'ip dport'],
    ['ipv6', 'ip6 protocol 17 0xff', 'ip6 dport'],
  ].map(
    ([protocol, udp, port], i) =>
      `tc filter add dev ${device} parent ${parent} protocol ${protocol} prio ${i + 1} ` +
      `u32 match ${udp} match ${port} ${ROCE_PORT} 0xffff ${action}`,
  );

// netem's default queue of 1000 packets would drop some of a delayed window by itself.
const netem = (what: string) => `netem limit 10000 ${what}`;

/** Outbound packets: a band of its own on eth0. Inbound packets: by way of ifb0, whose output eth0 takes in. */
export function raiseFaults(sent: string, received: string): string {
  const commands: string[] = [];
  if (sent) {
    commands.push(
      `tc qdisc add dev eth0 root handle 1: prio bands 4 priomap${' 0'.repeat(16)}`,
      `tc qdisc add dev eth0 parent 1:4 handle 40: ${netem(sent)}`,
      ...pick('eth0', '1:', 'flowid 1:4'),
    );
  }
  if (received) {
    commands.push(
      'modprobe ifb numifbs=1',
      'ip link set ifb0 mtu 9000 up',
      `tc qdisc add dev ifb0 root ${netem(received)}`,
      'tc qdisc add dev eth0 handle ffff: ingress',
      ...pick('eth0', 'ffff:', 'action mirred egress redirect dev ifb0'),
    );
  }
  return commands.join(' && ');
}

/**
 * Nothing is lost from now on, and the queues stay in place: while one is taken away the kernel drops what is sent, and rxe of Linux 6.12
 * ends the queue pair whose packet that was (`WR_FLUSH_ERR`).
 */
export const endLosses = ['eth0 parent 1:4 handle 40:', 'ifb0 root']
  .map((place) => `tc qdisc change dev ${place} ${netem('loss 0%')}; `)
  .concat('true')
  .join('');

export const clearFaults =
  'tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress; tc qdisc del dev ifb0 root; true';
