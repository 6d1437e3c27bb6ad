import S3rver from '@20minutes/s3rver';

/**
 * `node s3-server.mjs FOLDER BUCKET [PORT]`: a server that speaks S3. Prints its port, and ends when its
 * stdin does, so that it never outlives the tests that started it. It knows its users, but signatures
 * are not compared: it counts a slash otherwise than AWS where the bucket stands in the path.
 */
const [directory, bucket, port = '0'] = process.argv.slice(2);
const server = new S3rver({ address: '127.0.0.1', port: Number(port), silent: true, allowMismatchedSignatures: true, directory, configureBuckets: [{ name: bucket }] });
const address = await server.run();
process.stdout.write(`${address.port}\n`);
process.stdin.resume().on('end', () => process.exit(0));
