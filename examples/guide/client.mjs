// Sends its arguments to server.mjs, one message each, and prints the answers.
import { connect } from 'node-roce/rdmacm';

const [server = '127.0.51.1:7471', source = '127.0.51.2', ...words] = process.argv.slice(2);
const connection = await connect(server, { source });
for (const word of words.length > 0 ? words : ['hello', 'world']) {
  await connection.send(word);
  const answer = await connection.receive();
  console.log(`${word} → ${new TextDecoder().decode(answer)}`);
}
await connection.close();
