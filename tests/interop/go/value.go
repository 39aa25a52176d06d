package main

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"reflect"
	"time"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

// plain turns a value of the library into what is printed; nil stands for null. test_interop.py has the same for
// values of rscylla.
func plain(info gocql.TypeInfo, value any) (any, error) {
	of := reflect.ValueOf(value)
	for of.Kind() == reflect.Pointer && of.Type() != reflect.TypeFor[*big.Int]() && of.Type() != reflect.TypeFor[*inf.Dec]() {
		of = of.Elem()
	}
	if !of.IsValid() || nilable(of.Kind()) && of.IsNil() {
		return nil, nil
	}
	switch info.Type() {
	case gocql.TypeList, gocql.TypeSet:
		elements, err := sequence(of, func(int) gocql.TypeInfo { return info.(gocql.CollectionType).Elem })
		if info.Type() == gocql.TypeSet && err == nil {
			return map[string]any{"set": elements}, nil
		}
		return elements, err
	case gocql.TypeTuple:
		return sequence(of, func(i int) gocql.TypeInfo { return info.(gocql.TupleTypeInfo).Elems[i] })
	case gocql.TypeMap:
		return entries(info.(gocql.CollectionType), of)
	case gocql.TypeUDT:
		return fields(info.(gocql.UDTTypeInfo), of)
	}
	return scalar(info, of.Interface())
}

func nilable(kind reflect.Kind) bool {
	return kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map || kind == reflect.Interface
}

func sequence(of reflect.Value, typeOf func(int) gocql.TypeInfo) ([]any, error) {
	elements := make([]any, of.Len())
	for i := range elements {
		element, err := plain(typeOf(i), of.Index(i).Interface())
		if err != nil {
			return nil, err
		}
		elements[i] = element
	}
	return elements, nil
}

func entries(info gocql.CollectionType, of reflect.Value) (any, error) {
	pairs := [][2]any{}
	for iter := of.MapRange(); iter.Next(); {
		key, err := plain(info.Key, iter.Key().Interface())
		if err != nil {
			return nil, err
		}
		value, err := plain(info.Elem, iter.Value().Interface())
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, [2]any{key, value})
	}
	return map[string]any{"map": pairs}, nil
}

func fields(info gocql.UDTTypeInfo, of reflect.Value) (any, error) {
	values, ok := of.Interface().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a user-defined type came as %s", of.Type())
	}
	pairs := [][2]any{}
	for _, field := range info.Elements {
		value, err := plain(field.Type, values[field.Name])
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, [2]any{field.Name, value})
	}
	return map[string]any{"map": pairs}, nil
}

func scalar(info gocql.TypeInfo, value any) (any, error) {
	switch value := value.(type) {
	case []byte:
		return "0x" + hex.EncodeToString(value), nil
	case gocql.UUID:
		return value.String(), nil
	case net.IP:
		return value.String(), nil
	case *big.Int:
		return map[string]any{"varint": value.String()}, nil
	case *inf.Dec:
		return fmt.Sprintf("%de%d", value.UnscaledBig(), -value.Scale()), nil
	case time.Time:
		if info.Type() == gocql.TypeDate {
			return value.Unix() / (24 * 60 * 60), nil
		}
		return value.UnixMilli(), nil
	case string, bool, int, int8, int16, int32, int64, float32, float64:
		return value, nil
	}
	return nil, fmt.Errorf("no way to print a %T", value)
}
