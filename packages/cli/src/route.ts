/** Finds the local address that leads to a host, from the kernel's routes and without sending a packet. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { isIPv4 } from 'node:net';

/** The source address of packets to a host, or the error of a host without a route. */
export async function sourceFor(host: string): Promise<string> {
  const socket = createSocket(isIPv4(host) ? 'udp4' : 'udp6');
  try {
    socket.connect(9, host);
    await once(socket, 'connect');
    return socket.address().address.split('%')[0];
  } finally {
    socket.close();
  }
}
