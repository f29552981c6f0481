// Where Sarama, kafka-go, franz-go and Pulsar's Go client put keys. Reads keys as hexadecimal lines, writes a JSON object a line.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

var counts = []int{8, 12, 65521}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == path {
			return dep.Version[1:]
		}
	}
	panic(path)
}

// The one partition that a key has, or nil if calls differ.
func one(place func() int) any {
	first := place()
	for range 40 {
		if place() != first {
			return nil
		}
	}
	return first
}

// The records that wait for each partition: none.
type backup struct{ rest int }

func (each *backup) Next() (int, int64) {
	each.rest--
	return each.rest, 0
}

func (each *backup) Rem() int { return each.rest }

func write(client, version, setting string, keys [][]byte, place func(key []byte, count int) int) {
	placed := map[string][]any{}
	for _, count := range counts {
		for _, key := range keys {
			placed[fmt.Sprint(count)] = append(placed[fmt.Sprint(count)], one(func() int { return place(key, count) }))
		}
	}
	none := one(func() int { return place(nil, 12) })
	said, _ := json.Marshal(map[string]any{"client": client, "version": version, "setting": setting, "none": none, "placed": placed})
	fmt.Println(string(said))
}

func main() {
	keys := [][]byte{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		key, err := hex.DecodeString(lines.Text())
		if err != nil {
			panic(err)
		}
		keys = append(keys, key)
	}
	saramas := version("github.com/IBM/sarama")
	for setting, made := range map[string]sarama.PartitionerConstructor{
		"":                                sarama.NewConfig().Producer.Partitioner,
		"NewReferenceHashPartitioner":     sarama.NewReferenceHashPartitioner,
		"NewConsistentCRCHashPartitioner": sarama.NewConsistentCRCHashPartitioner,
		"NewMurmur2Partitioner":           sarama.NewMurmur2Partitioner,
		"NewRoundRobinPartitioner":        sarama.NewRoundRobinPartitioner,
	} {
		partitioner := made("orders")
		write("Sarama", saramas, setting, keys, func(key []byte, count int) int {
			message := &sarama.ProducerMessage{Topic: "orders"}
			if key != nil {
				message.Key = sarama.ByteEncoder(key)
			}
			partition, err := partitioner.Partition(message, int32(count))
			if err != nil {
				panic(err)
			}
			return int(partition)
		})
	}
	kafkas := version("github.com/segmentio/kafka-go")
	for setting, balancer := range map[string]kafka.Balancer{
		"&kafka.Hash{}":                           &kafka.Hash{},
		"&kafka.ReferenceHash{}":                  &kafka.ReferenceHash{},
		"kafka.CRC32Balancer{}":                   kafka.CRC32Balancer{},
		"kafka.CRC32Balancer{Consistent: true}":   kafka.CRC32Balancer{Consistent: true},
		"kafka.Murmur2Balancer{}":                 kafka.Murmur2Balancer{},
		"kafka.Murmur2Balancer{Consistent: true}": kafka.Murmur2Balancer{Consistent: true},
		"": &kafka.RoundRobin{}, // Of a Writer whose Balancer is nil: its method balancer() makes this one.
	} {
		write("kafka-go", kafkas, setting, keys, func(key []byte, count int) int {
			partitions := make([]int, count)
			for number := range partitions {
				partitions[number] = number
			}
			return balancer.Balance(kafka.Message{Key: key}, partitions...)
		})
	}
	// The first is what a client without RecordPartitioner has.
	for setting, partitioner := range map[string]kgo.Partitioner{
		"":                          kgo.UniformBytesPartitioner(64<<10, true, true, nil),
		"StickyKeyPartitioner(nil)": kgo.StickyKeyPartitioner(nil),
	} {
		franz := partitioner.ForTopic("orders")
		write("franz-go", version("github.com/twmb/franz-go"), setting, keys, func(key []byte, count int) int {
			if batched, does := franz.(kgo.TopicPartitionerOnNewBatch); does {
				batched.OnNewBatch()
			}
			record := &kgo.Record{Key: key, Value: make([]byte, 65<<10)}
			if backed, does := franz.(kgo.TopicBackupPartitioner); does {
				return backed.PartitionByBackup(record, count, &backup{rest: count})
			}
			return franz.Partition(record, count)
		})
	}
}
